"""Indexes for pages of leases, in each order that a page may have."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
phase = "expand"

_INDEXES = [
    *([*of, key, "id"] for of in ([], ["project_id"]) for key in ("created_at", "start_date", "end_date")),
    ["name"],
    ["status", "created_at", "id"],
]


def upgrade() -> None:
    for columns in _INDEXES:
        op.create_index(f"ix_leases_{'_'.join(columns)}", "leases", columns)
    op.drop_index("ix_leases_project_id", "leases")  # the beginning of three of the new ones


def downgrade() -> None:
    op.create_index("ix_leases_project_id", "leases", ["project_id"])
    for columns in _INDEXES:
        op.drop_index(f"ix_leases_{'_'.join(columns)}", "leases")
