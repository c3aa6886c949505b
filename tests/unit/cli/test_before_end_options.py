"""The section [before_end]: what it allows, and values that are refused at the start."""

import pytest

from moorage.config import load_config
from moorage.core.errors import StartError
from moorage.reservation.model.before_end_actions import Allowed
from moorage.reservation.steps.notification_steps import MailServer
from moorage.wiring.reservation_settings import before_end_settings


def read(tmp_path, text):
    path = tmp_path / "moorage.conf"
    path.write_text(f"[before_end]\n{text}\n")
    return before_end_settings(load_config(path))


def test_without_options_no_action_before_the_end_is_allowed(tmp_path):
    assert read(tmp_path, "") == {"allowed": Allowed(), "mail": None, "before_end_of_hosts": ""}


def test_the_listed_webhooks_mail_domains_and_hosts_are_allowed(tmp_path):
    text = """webhook_origins = https://Hooks.example.org:443/, http://ci.example.org:8080
smtp_server = mail.example.org:587
smtp_user = leases
smtp_password = secret
mail_sender = leases@example.org
mail_domains = Example.com
lent_hosts = snapshot"""
    assert read(tmp_path, text) == {
        "allowed": Allowed(
            frozenset({"https://hooks.example.org", "http://ci.example.org:8080"}), True, frozenset({"example.com"})
        ),
        "mail": MailServer("mail.example.org", 587, "starttls", "leases@example.org", "leases", "secret"),
        "before_end_of_hosts": "snapshot",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("webhook_origins = hooks.example.org", "webhook_origins has hooks.example.org"),
        ("webhook_origins = https://hooks.example.org/path", "use https://host"),
        ("smtp_server = mail.example.org", "use host:port"),
        ("smtp_server = mail.example.org:25", "mail_sender must be an email address"),
        (
            "smtp_server = m:25\nmail_sender = a@b.c\nsmtp_user = u\nsmtp_security = none",
            "the password would be sent unencrypted",
        ),
    ],
)
def test_an_invalid_option_is_a_start_error_that_names_it(tmp_path, text, words):
    with pytest.raises(StartError, match=r"\[before_end\]") as refusal:
        read(tmp_path, text)
    assert words in refusal.value.message
