"""``moorage.wsgi.reservation:application``."""

from moorage.wsgi.entry import Application

application = Application("reservation")
