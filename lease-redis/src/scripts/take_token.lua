-- Returns a token that is larger than all tokens that the server gave.
return take_token(KEYS[1])
