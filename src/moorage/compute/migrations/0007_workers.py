"""Creates the table of workers."""

from moorage.jobs import initial_workers_table as workers

phase = "expand"


def upgrade() -> None:
    workers.create()


def downgrade() -> None:
    workers.drop()
