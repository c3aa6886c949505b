"""The dashboard: server-rendered web pages below ``/ui``.

It is an ordinary client of the public APIs and acts with the signed-in user's token; it offers nothing that the APIs do
not offer, and has no database.

    browser -> routes -> page_request (sign-in, form token, errors) -> handlers -> views -> templates
                                                                          |
                                                                    service clients

Built by `moorage.wiring.dashboard`. `rendering` fills the templates, and `forms` checks what browsers send.
`signing_in` exchanges passwords for tokens; `cookies` keeps them in the browser.
"""
