"""``moorage.wsgi.compute:application``."""

from moorage.wsgi.entry import Application

application = Application("compute")
