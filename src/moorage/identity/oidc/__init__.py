"""Sign-in with an OpenID provider: people whom somebody else knows get users, roles and tokens of our identity service.

    dashboard   random secret in a cookie -> browser_secret -> authorization URL -> (the provider) -> state and code
                -> sign_in -> provider.redeem_code (with the PKCE verifier) -> id_token.verify -> claims
    CLI         device_login -> (the provider shows a page, the person enters a code) -> ID token -> sign_in -> claims
    claims      -> mapping.grants_of -> people.account_change -> one transaction -> a token, as after a password

In it: the settings (`settings`), the rules of the mapping file (`mapping`), the user of a person and its roles
(`people`), what is derived from the browser's secret (`browser_secret`), bounded requests to the provider
(`provider_http`), its metadata, keys and token endpoint (`provider`), the checks of an ID token (`id_token`), the use
cases (`sign_in`), and the device authorization grant of the CLI (`device_login`). `mapping`, `people` and
`browser_secret` decide; they do no I/O.
Not in it: routes (`moorage.identity.api`), pages and cookies (`moorage.dashboard`), and tokens (`embedded`).
Callers: `moorage.wiring` builds it if [oidc] has an issuer, and only then Authlib is imported; the CLI.

Source: OpenID Connect Core 1.0 (sections 3.1 and 3.1.3.7), Discovery 1.0, RFC 7636 (PKCE), RFC 8628 (devices), RFC 9207
(the issuer in the answer). Not supported: the implicit and hybrid flows, encrypted ID tokens, symmetric signatures,
logout by the provider (front- or back-channel), refresh tokens, UserInfo, and SAML.
"""
