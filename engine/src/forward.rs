//! Forwards methods of a trait to the value that does the work.

/// Defines methods that call the methods of the same names and arguments of a field:
/// `forward! { inner => fn name(&self) -> &str; }`.
macro_rules! forward {
    ($field:tt =>) => {};
    ($field:tt =>
        fn $name:ident(&mut $this:ident $(, $argument:ident: $of:ty)* $(,)?) -> $out:ty;
        $($rest:tt)*
    ) => {
        fn $name(&mut $this $(, $argument: $of)*) -> $out {
            $this.$field.$name($($argument),*)
        }
        forward! { $field => $($rest)* }
    };
    ($field:tt =>
        fn $name:ident(&$this:ident $(, $argument:ident: $of:ty)* $(,)?) -> $out:ty;
        $($rest:tt)*
    ) => {
        fn $name(&$this $(, $argument: $of)*) -> $out {
            $this.$field.$name($($argument),*)
        }
        forward! { $field => $($rest)* }
    };
}

pub(crate) use forward;
