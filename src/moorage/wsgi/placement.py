"""``moorage.wsgi.placement:application``."""

from moorage.wsgi.entry import Application

application = Application("placement")
