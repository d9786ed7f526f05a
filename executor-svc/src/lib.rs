//! Module map.
