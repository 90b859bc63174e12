-- Returns a token that is larger than all tokens that the server gave. KEYS: tokens.
return take_token(KEYS[1])
