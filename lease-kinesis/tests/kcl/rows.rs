//! Rows as KCL writes them, on a live server.
