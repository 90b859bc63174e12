-- Returns a token that is larger than all that the server gave. KEYS: tokens.
return take_token(KEYS[1])
