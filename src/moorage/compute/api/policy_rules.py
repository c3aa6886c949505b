"""Policy rules by Nova's names.

Members own the servers of their project. Hosts, aggregates, the creation of flavors and servers of other projects are
for administrators (and other services).
"""

from moorage.identity.policy import RuleTable, admin, admin_or_service, agent, anyone, member, reader

OWN = "os_compute_api:"
#: Routes of the host agents.
AGENT_RULE = "moorage:agent"
#: Explanations of scheduling; and the same with host names.
EXPLAIN_RULE, EXPLAIN_HOSTS_RULE = "moorage:explain", "moorage:explain:hosts"
MIGRATE_RULE = "moorage:migrate-flavors"
PROVIDER_CONFIG_RULE = "moorage:provider-config"

#: Reading the project's own resources, and public ones. Nova's proxy to images has no rules of its own.
_FOR_READERS = (
    "images:index", "images:show",
    "flavors:index", "flavors:show", "os-flavor-extra-specs:index", "os-flavor-extra-specs:show",
    "servers:index", "servers:detail", "servers:show", "server-metadata:index", "server-metadata:show",
    "os-server-tags:index", "os-server-tags:show", "ips:index", "ips:show", "os-attach-interfaces:list",
    "os-attach-interfaces:show", "os-volumes-attachments:index", "os-volumes-attachments:show",
    "os-security-groups:list", "os-server-shares:index", "os-server-shares:show", "server-topology:index",
    "os-server-password:show", "extensions", "os-instance-actions:list", "os-instance-actions:show",
    "os-availability-zone:list", "os-keypairs:index", "os-keypairs:show", "limits", "os-quota-sets:show",
    "os-quota-sets:defaults", "os-quota-sets:detail", "os-simple-tenant-usage:show", "os-server-groups:index",
    "os-server-groups:show",
)  # fmt: skip
#: Changing the project's own resources.
_FOR_MEMBERS = (
    "servers:create", "servers:update", "servers:delete", "servers:action", "servers:start", "servers:stop",
    "servers:reboot", "servers:rebuild", "servers:create_image", "servers:trigger_crash_dump", "os-create-backup",
    "os-suspend-server:suspend", "os-suspend-server:resume", "os-rescue", "os-unrescue", "os-admin-password",
    "os-deferred-delete:restore", "os-shelve:shelve", "os-shelve:unshelve", "servers:resize", "servers:confirm_resize",
    "servers:revert_resize", "os-pause-server:pause", "os-pause-server:unpause", "os-lock-server:lock",
    "os-lock-server:unlock", "os-console-output", "os-remote-consoles", "os-deferred-delete:force",
    "server-metadata:create",
    "os-server-tags:update", "os-server-tags:update_all", "os-server-tags:delete", "os-server-tags:delete_all",
    "os-server-password:clear", "server-metadata:update", "server-metadata:update_all", "server-metadata:delete",
    "os-attach-interfaces:create", "os-attach-interfaces:delete",
    "os-keypairs:create", "os-keypairs:delete", "os-server-groups:create", "os-server-groups:delete",
)  # fmt: skip
#: For administrators and for the reservation and accelerator services.
_FOR_SERVICES = (
    "os-server-external-events:create", "servers:index:get_all_tenants", "servers:detail:get_all_tenants",
    "os-extended-server-attributes", "servers:show:host_status", "os-flavor-manage:create", "os-flavor-manage:update",
    "os-flavor-manage:delete", "os-flavor-extra-specs:create", "os-flavor-extra-specs:update",
    "os-flavor-extra-specs:delete", "os-flavor-access", "os-flavor-access:change", "os-hypervisors:list",
    "os-hypervisors:list-detail", "os-hypervisors:show", "os-hypervisors:search", "os-hypervisors:servers",
    "os-hypervisors:statistics", "os-services:list", "os-availability-zone:detail", "os-aggregates:index",
    "os-aggregates:show", "os-aggregates:create", "os-aggregates:update", "os-aggregates:delete",
    "os-aggregates:action", "os-aggregates:add_host", "os-aggregates:remove_host", "os-aggregates:set_metadata",
)  # fmt: skip
_FOR_ADMINS = (
    "os-shelve:shelve_offload", "os-shelve:unshelve_to_host", "os-migrate-server:migrate",
    "os-migrate-server:migrate_live", "os-evacuate", "servers:create:forced_host", "os-migrations:index",
    "servers:migrations:index", "servers:migrations:show", "os-server-groups:index:all_projects",
    "os-quota-class-sets:show", "os-quota-class-sets:update", "os-server-diagnostics", "os-services:delete",
    "os-hosts:list", "os-hosts:show", "os-hypervisors:uptime", "os-lock-server:unlock:unlock_override",
    "os-admin-actions:reset_state", "os-instance-actions:events", "os-services:update", "os-keypairs:others",
    "limits:other_project", "os-quota-sets:others", "os-quota-sets:update", "os-quota-sets:delete",
    "os-simple-tenant-usage:list",
)  # fmt: skip

RULES = RuleTable(
    {OWN + name: reader for name in _FOR_READERS}
    | {OWN + name: member for name in _FOR_MEMBERS}
    | {OWN + name: admin_or_service for name in _FOR_SERVICES}
    | {OWN + name: admin for name in _FOR_ADMINS}
    | {
        AGENT_RULE: agent,
        EXPLAIN_RULE: reader,
        EXPLAIN_HOSTS_RULE: admin_or_service,
        MIGRATE_RULE: admin,
        PROVIDER_CONFIG_RULE: admin,
    }
    # Unsupported routes are refused with the same message for everybody.
    | {f"{OWN}moorage:absent": anyone}
)
