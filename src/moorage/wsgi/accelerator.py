"""``moorage.wsgi.accelerator:application``."""

from moorage.wsgi.entry import Application

application = Application("accelerator")
