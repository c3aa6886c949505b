"""An index for the deletion of a profile, which checks for requests of the profile among any number of others."""

from alembic import op

revision = "0003"
down_revision = "0002"

_INDEX = "ix_accelerator_requests_device_profile_name"


def upgrade() -> None:
    op.create_index(_INDEX, "accelerator_requests", ["device_profile_name"])


def downgrade() -> None:
    op.drop_index(_INDEX, "accelerator_requests")
