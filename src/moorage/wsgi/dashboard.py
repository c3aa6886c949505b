"""``moorage.wsgi.dashboard:application``: the pages at ``/ui``."""

from moorage.wsgi.entry import Application

application = Application("dashboard")
