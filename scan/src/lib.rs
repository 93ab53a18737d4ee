//! Which rows come out of these pages?
