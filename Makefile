# Everything a clone can do. Python 3.11 or newer is needed; the rest is installed here, from requirements/.

PYTHON ?= python3

MAKEFLAGS += --no-print-directory
INSTALL := .venv/bin/python tools/install.py
# What `make test` needs, and what `make test-all` needs beside it; installed two at a time.
CORE := .venv/.collected .venv/.browser .venv-clients/.done .venv-conformance/.done
EXTENDED := .venv/.libvirt .venv-cyborgclient/.done .venv-keystone/.done .venv-glance/.done .venv-tempest/.done .venv-blazar/.done .venv-cyborg/.done .venv-neutron/.done .venv-ironic/.done .venv-ansible/.done .venv-patroni/.done .venv-docs/.done .venv-audit/.done
PYTEST := .venv/bin/pytest
# Of the tests; some of them wait for servers and browsers, so one more than there are cores.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
# Compiled once and not at each start of a process, of which the tests make hundreds.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help
help: ## List what there is (the default)
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: ## From nothing to a finished tour: install, start the whole plane, drive it with the stock clients
	@$(MAKE) -s -j2 .venv/.runtime .venv-clients/.done
	@.venv/bin/python tools/demo.py --clients .venv-clients/bin

.PHONY: up
up: .venv/.runtime ## Run the whole plane in the foreground; Ctrl-C ends it, its state stays
	@.venv/bin/moorage up

.PHONY: test
test: ## Run the core tests, from nothing in ten minutes; ARGS="tests/unit -k claim" runs those
	@$(MAKE) -s -j2 $(CORE)
	@.venv/bin/python -m tests.servers --only=postgresql,mariadb $(PYTEST) -n $(WORKERS) --suite=$(if $(findstring tests/,$(ARGS)),all,core) $(ARGS)

.PHONY: test-all
test-all: ## Run all other tests; SHARD="tests/system tests/crash" runs the part of them in these directories
	@$(MAKE) -s -j2 $(CORE) $(EXTENDED)
	@.venv/bin/python -m tests.servers $(PYTEST) -n $(WORKERS) --suite=extended $(SHARD) $(ARGS)

.PHONY: test-changed
test-changed: .venv/.collected ## Run the tests that the uncommitted changes can affect, or all since BASE=REVISION
	@.venv/bin/python -m tests.changed --base $(or $(BASE),HEAD) --pytest "$(PYTEST) -n $(WORKERS) --suite=$(or $(SUITE),all) $(ARGS)"

.PHONY: conformance
conformance: .venv/.dev .venv-conformance/.done ## Placement's own test suite against ours, on all three databases; ARGS="--help" says more
	@.venv/bin/python -m tests.conformance $(ARGS)

.PHONY: test-nova
test-nova: .venv/.dev .venv-clients/.done .venv-keystone/.done .venv-glance/.done .venv-conformance/.done .venv-nova/.done ## A real Nova above our placement, reservation and accelerator services; 5 minutes
	@MOORAGE_TEST_NOVA=1 .venv/bin/python -m tests.servers $(PYTEST) tests/nova $(ARGS)

.PHONY: test-qemu
test-qemu: .venv/.libvirt ## The accelerator drivers over a real kernel, in a guest with SR-IOV, IOMMU and mdev; a server with a passed-through drive; 8 minutes
	@MOORAGE_TEST_QEMU=1 $(PYTEST) -rs tests/qemu $(ARGS)

.PHONY: test-container
test-container: .venv/.dev ## The image of packaging/container: built with buildah and run as compose.yaml runs it; 5 minutes
	@MOORAGE_TEST_CONTAINER=1 $(PYTEST) -rs -n0 tests/container $(ARGS)

.PHONY: test-brokers
test-brokers: .venv/.dev ## Hints over three nodes of RabbitMQ, each of which is killed; 2 minutes
	@MOORAGE_TEST_BROKERS=1 $(PYTEST) -rs -n0 tests/system/clusters/test_broker_cluster.py $(ARGS)

.PHONY: test-clusters
test-clusters: .venv/.dev .venv-patroni/.done ## All tests of tests/system/clusters, also those that take a minute each; 10 minutes
	@MOORAGE_TEST_CLUSTERS=1 MOORAGE_TEST_BROKERS=1 .venv/bin/python -m tests.servers $(PYTEST) -rs -n0 tests/system/clusters $(ARGS)

.PHONY: clusters
clusters: .venv/.dev .venv-patroni/.done ## Kill, suspend, cut off and fill each machine of a whole cloud under load, and set its clock wrong; needs root; ARGS="--minutes 30", --only KIND
	@.venv/bin/python -m tests.system.clusters.campaign $(ARGS)

.PHONY: crash
crash: .venv/.dev ## Kill the server and its database 1,000 times each, under load, and look at what is left; 20 minutes
	@.venv/bin/python -m tests.crash $(ARGS)

.PHONY: simulate
simulate: .venv/.dev ## The whole plane in virtual time with seeded faults, checked at each step; ARGS="--minutes 5", --seed N
	@.venv/bin/python -m tests.simulation $(ARGS)

.PHONY: reliability
reliability: .venv/.dev ## The simulation and the crash campaign in turn, for as long as you like; ARGS="--minutes 30"
	@.venv/bin/python -m tests.simulation.reliability $(ARGS)

.PHONY: differential
differential: .venv/.dev .venv-conformance/.done ## Random requests to upstream Placement and to ours, until something differs; ARGS="--help" says more
	@.venv/bin/python -m tests.differential $(ARGS)

.PHONY: fuzz-http
fuzz-http: .venv/.dev ## Hostile bytes to our HTTP parser, h11 and gunicorn, until they differ; ARGS="--minutes 60", --seed N
	@.venv/bin/python -m tests.fuzz.http_parsers $(ARGS)

.PHONY: bench
bench: .venv/.runtime .venv-bench/.done ## Upstream Placement and ours side by side: a ratio table in 5 minutes; ARGS="--help" says more
	@.venv/bin/python -m bench $(ARGS)

.PHONY: check
check: .venv/.dev ## Lint, types, import rules and the fast tests
	@$(MAKE) --keep-going lint types imports fast

.PHONY: lint
lint: .venv/.dev ## ... of these, ruff
	.venv/bin/ruff check --quiet
	.venv/bin/ruff format --check --quiet

.PHONY: types
types: .venv/.dev ## ... mypy
	.venv/bin/mypy

.PHONY: imports
imports: .venv/.dev ## ... the import rules of ARCHITECTURE.md
	.venv/bin/lint-imports --no-logo

.PHONY: fast
fast: .venv/.dev ## ... the fast tests, which need no server
	$(PYTEST) -q -m "not slow" $(wildcard tests/unit tests/property tests/docs) $(ARGS)

.PHONY: format
format: .venv/.dev ## Format the code and mend what lint can mend
	.venv/bin/ruff check --fix --quiet --exit-zero
	.venv/bin/ruff format

.PHONY: reference
reference: .venv/.dev ## Write the pages of docs/reference from the code
	@.venv/bin/python tools/reference_pages.py
	@.venv/bin/python tools/pictures.py
	@.venv/bin/python tools/commands_page.py
	@.venv/bin/python tools/man_page.py

.PHONY: specs
specs: .venv/.dev ## Fill the tables of docs/evidence/specs from the docstrings of the tests
	.venv/bin/python tools/spec_rows.py

.PHONY: mutate
mutate: .venv/.dev .venv-mutate/.done ## Break the code of each row of docs/evidence/specs, and list the rows whose tests do not notice; ARGS="--help"
	@.venv-mutate/bin/python -m tools.mutate $(ARGS)

.PHONY: docs
docs: .venv-docs/.done ## Build the documents into build/docs; a warning (a link that leads nowhere) is an error
	@.venv-docs/bin/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/sphinx --doctree-dir build/doctrees . build/docs
	@echo "open build/docs/index.html"

.PHONY: sbom
sbom: .venv/.dev ## The bill of materials of the locked packages (CycloneDX) into dist/
	@.venv/bin/python tools/packages.py sbom

.PHONY: licences
licences: .venv/.dev ## Write docs/reference/licences.md from the metadata of the locked packages
	@.venv/bin/python tools/packages.py licences

.PHONY: pip-audit
pip-audit: .venv/.dev .venv-audit/.done ## Ask for known vulnerabilities of the locked packages; OSV=DIRECTORY asks an export instead
	@.venv/bin/python tools/packages.py vulnerabilities $(if $(OSV),--osv $(OSV))

.PHONY: wheel
wheel: .venv/.runtime ## Build the wheel into dist/, from what is committed or would be
	@.venv/bin/python tools/wheel.py

.PHONY: deb
deb: .venv/.runtime ## Build a Debian package for this machine's Debian into dist/
	@.venv/bin/python tools/deb.py

.PHONY: release
release: .venv/.dev ## Wheel, Debian package, bill of materials, signed checksums and a signed tag of this commit; ARGS="--key KEY"
	@.venv/bin/python tools/release.py $(ARGS)

.PHONY: lock
lock: .venv/.uv ## Write requirements/*.txt again from requirements/*.in
	@for lock in runtime uv dev keystonemiddleware libvirt nvidia signatures oidc otel clients cyborgclient keystone glance nova neutron ironic conformance tempest blazar cyborg ansible patroni bench docs audit mutate; do \
	    echo "requirements/$$lock.txt"; \
	    (cd requirements && ../.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	        --no-header --no-annotate $$lock.in --output-file $$lock.txt) || exit 1; \
	done

.PHONY: clean
clean: ## Remove virtual environments, caches and build output (state of a plane stays)
	rm -rf .venv .venv-clients .venv-cyborgclient .venv-keystone .venv-glance .venv-nova .venv-neutron .venv-ironic .venv-conformance .venv-tempest .venv-blazar .venv-cyborg .venv-ansible .venv-patroni .venv-bench .venv-docs .venv-audit .venv-mutate build dist src/*.egg-info
	rm -rf .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------------------------- virtual environments
# One stamp file each, older than the lock file it was filled from means: install again.

.venv/.uv: requirements/uv.txt
	@tools/bootstrap $(PYTHON)
	@echo "making a virtual environment ..."
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@# Without uv (no build for this platform) tools/install.py uses pip.
	@.venv/bin/python -m pip install -qq --no-compile --disable-pip-version-check --require-hashes -r $< || true
	@touch $@

.venv/.runtime: requirements/runtime.txt pyproject.toml | .venv/.uv
	@$(INSTALL) --into .venv --name Moorage --checkout $<
	@touch $@

.venv/.dev: requirements/dev.txt requirements/keystonemiddleware.txt requirements/nvidia.txt requirements/signatures.txt requirements/oidc.txt requirements/otel.txt .venv/.runtime
	@$(INSTALL) --into .venv --name "test and lint tools" $(filter %.txt,$^)
	@touch $@

# What the tests are compiled to (with their assertions rewritten), which takes longer than everything else at a start.
.venv/.collected: .venv/.dev
	@$(PYTEST) --collect-only --quiet >/dev/null || $(PYTEST) --collect-only --quiet | tail -n 40
	@touch $@

.venv/.libvirt: requirements/libvirt.txt | .venv/.browser
	@# Without them their tests are skipped: no reason to stop here.
	@tools/libvirt_host $< && touch $@ || true

.venv/.browser: tools/browser_host | .venv/.dev
	@tools/browser_host && touch $@ || true

.venv-clients/.done: requirements/clients.txt | .venv/.uv
	@$(INSTALL) --into .venv-clients --name "the OpenStack clients" $<
	@touch $@

.venv-cyborgclient/.done: requirements/cyborgclient.txt | .venv/.uv
	@$(INSTALL) --into .venv-cyborgclient --name "the older accelerator client" $<
	@touch $@

.venv-keystone/.done: requirements/keystone.txt | .venv/.uv
	@$(INSTALL) --into .venv-keystone --name "a Keystone to test against" $<
	@touch $@

.venv-glance/.done: requirements/glance.txt | .venv/.uv
	@$(INSTALL) --into .venv-glance --name "a Glance to test against" $<
	@touch $@

.venv-conformance/.done: requirements/conformance.txt | .venv/.uv
	@$(INSTALL) --into .venv-conformance --name "Placement's test suite and the Placement it is from" $<
	@touch $@

.venv-nova/.done: requirements/nova.txt | .venv/.uv
	@$(INSTALL) --into .venv-nova --name "a Nova to test against" $<
	@touch $@

.venv-neutron/.done: requirements/neutron.txt | .venv/.uv
	@$(INSTALL) --into .venv-neutron --name "a Neutron to test against" $<
	@touch $@

.venv-ironic/.done: requirements/ironic.txt | .venv/.uv
	@$(INSTALL) --into .venv-ironic --name "an Ironic to test against" $<
	@touch $@

.venv-tempest/.done: requirements/tempest.txt | .venv/.uv
	@$(INSTALL) --into .venv-tempest --name "Tempest's tests" $<
	@touch $@

.venv-blazar/.done: requirements/blazar.txt | .venv/.uv
	@$(INSTALL) --into .venv-blazar --name "a Blazar to import from" $<
	@touch $@

.venv-cyborg/.done: requirements/cyborg.txt | .venv/.uv
	@$(INSTALL) --into .venv-cyborg --name "a Cyborg to move from" $<
	@touch $@

.venv-ansible/.done: requirements/ansible.txt | .venv/.uv
	@$(INSTALL) --into .venv-ansible --name "Ansible with its collection openstack.cloud" --part ansible ansible_collections/openstack/cloud $<
	@touch $@

.venv-patroni/.done: requirements/patroni.txt | .venv/.uv
	@$(INSTALL) --into .venv-patroni --name "a Patroni to test against" $<
	@touch $@

.venv-audit/.done: requirements/audit.txt | .venv/.uv
	@$(INSTALL) --into .venv-audit --name "bandit and pip-audit" $<
	@touch $@

.venv-mutate/.done: requirements/mutate.txt | .venv/.uv
	@$(INSTALL) --into .venv-mutate --name "cosmic-ray" $<
	@touch $@

.venv-docs/.done: requirements/docs.txt | .venv/.uv
	@$(INSTALL) --into .venv-docs --name "what builds the documents" $<
	@touch $@

.venv-bench/.done: requirements/bench.txt | .venv/.uv
	@$(INSTALL) --into .venv-bench --name "the Placement to be compared with" $<
	@touch $@
