//! Defines a macro that lists a sample of each variant of an enum, with its name.

/// Defines a function that returns samples of an enum, one for each listed variant, with names such
/// as `Request.Fetch`. It does not compile unless every variant is listed.
macro_rules! one_of_each {
    (
        fn $function:ident() -> $of:ident {
            $($variant:ident $(($($inner:tt)*))? $({$($field:tt)*})?),* $(,)?
        }
    ) => {
        pub(crate) fn $function() -> Vec<(&'static str, $of)> {
            const _: fn(&$of) = |sample| match sample {
                $($of::$variant { .. })|* => {}
            };
            vec![$((
                concat!(stringify!($of), ".", stringify!($variant)),
                $of::$variant $(($($inner)*))? $({$($field)*})?,
            )),*]
        }
    };
}

pub(crate) use one_of_each;
