"""``moorage.wsgi.image:application``."""

from moorage.wsgi.entry import Application

application = Application("image")
