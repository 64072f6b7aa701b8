//! What an existing table's spec may change to.
