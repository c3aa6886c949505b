"""``moorage.wsgi.network:application``."""

from moorage.wsgi.entry import Application

application = Application("network")
