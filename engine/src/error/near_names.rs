//! Suggests existing names that are similar to an unknown name.

/// Names similar to `wanted`, for a message; all names if none is similar; `if_none` if there are
/// no names.
pub(crate) fn near_names(wanted: &str, names: &[String], if_none: &str) -> String {
    let wanted = wanted.to_lowercase();
    let mut near: Vec<(usize, &String)> = names
        .iter()
        .map(|name| (edit_distance(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .collect();
    near.sort();
    if !near.is_empty() {
        let near: Vec<&str> = near.iter().take(3).map(|(_, name)| name.as_str()).collect();
        return format!("did you mean {}?", near.join(" or "));
    }
    match names {
        [] => if_none.to_owned(),
        [name] => format!("there is {name}"),
        names => format!("there are {}", names.join(", ")),
    }
}

/// The Levenshtein distance of two names: insertions, deletions and replacements of characters.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_table_is_answered_with_the_nearest_names() {
        let names = ["lineitem", "orders", "part", "partsupp"].map(str::to_owned);
        assert_eq!(near_names("lineitems", &names, "none"), "did you mean lineitem?");
        assert_eq!(near_names("zzz", &names, "none"), "there are lineitem, orders, part, partsupp");
        assert_eq!(near_names("x", &[], "none"), "none");
    }
}
