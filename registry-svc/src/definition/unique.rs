//! A list without repeats: the first of each stays.

use std::collections::HashSet;

/// Names in the order in which they were first added.
#[derive(Clone, Debug, Default)]
pub(super) struct Unique {
    names: Vec<String>,
    seen: HashSet<String>,
}

impl Unique {
    pub(super) fn add(&mut self, name: impl Into<String>) {
        let name = name.into();
        if self.seen.insert(name.clone()) {
            self.names.push(name);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn into_vec(self) -> Vec<String> {
        self.names
    }
}

impl<T: Into<String>> Extend<T> for Unique {
    fn extend<I: IntoIterator<Item = T>>(&mut self, names: I) {
        names.into_iter().for_each(|name| self.add(name));
    }
}

impl<T: Into<String>> FromIterator<T> for Unique {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut unique = Self::default();
        unique.extend(names);
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_stays() {
        assert_eq!(Unique::from_iter(["b", "a", "b", "c", "a"]).into_vec(), ["b", "a", "c"]);
    }
}
