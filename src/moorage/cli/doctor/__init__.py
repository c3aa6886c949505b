"""`moorage doctor`: what is wrong with an installation, where, and what to do about it. Nothing is changed.

`command` runs the checks of `software`, `files`, `databases`, `clocks`, `bus`, `policy` and `endpoints`, each of which
takes the configuration and gives its findings (`finding`).
"""
