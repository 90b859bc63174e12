//! What the tests share: real servers, and what comes between them and us.
