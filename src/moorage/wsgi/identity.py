"""``moorage.wsgi.identity:application``."""

from moorage.wsgi.entry import Application

application = Application("identity")
