//! How are bytes read from and written to a device, past the page cache?
