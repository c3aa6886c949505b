"""`moorage backup` and `moorage restore`.

    command: manifest, order of databases, encryption -> backup_files: dump and restore one database, copy state files
                                                      -> age_file: encrypt and decrypt with a passphrase

Not here: backups of images outside the state directory, and of databases that other processes use.
"""
