"""Does what Placement has written down agree with what the other services know, and with itself?

`collector` asks all services through their clients and makes a picture, `findings` decides what is wrong in it (pure),
`healing` mends what is safe to mend, each step only if nothing has changed since, and `journal` keeps what was done.
"""
