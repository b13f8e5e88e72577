//! Contents page.
