"""Every configuration option, with its default and help text: one dataclass for each section of the file.

A reader finds a section in the module of its subject::

    plane        [plane] [server] [database] [endpoints]: the process
    services     [identity] [placement] [accelerator] [image] [network]
    compute      [compute] [scheduler]
    host         [agent] [libvirt]
    reservation  [reservation] [enforcement] [before_end]
    telemetry    [audit] [trail] [tracing]
    declaration  how an option is declared

Not here: reading and writing the file; `moorage.config` does that, and is the only way to load options. It also has
the values that follow from options. Only it, the wiring and the command line import these modules. `make reference`
writes docs/reference/options.md from them.
"""
