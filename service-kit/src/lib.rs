//! What both services do identically, and nothing else.
