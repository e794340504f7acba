//! What a reader knows: the encodings and layouts that files may name.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::encodings::{self, Encoding};
use crate::layout::{self, LayoutKind};

/// The encodings and layouts known to a reader, by id.
#[derive(Clone)]
pub struct Registry {
    encodings: Arc<HashMap<&'static str, Arc<dyn Encoding>>>,
    layouts: Arc<HashMap<&'static str, Arc<dyn LayoutKind>>>,
}

impl Registry {
    /// The built-in encodings and layouts.
    pub fn built_in() -> Registry {
        static BUILT_IN: OnceLock<Registry> = OnceLock::new();
        BUILT_IN
            .get_or_init(|| {
                let encodings = encodings::built_in().into_iter();
                let encodings = encodings.map(|encoding| (encoding.id(), encoding)).collect();
                let layouts = layout::built_in().into_iter().map(|kind| (kind.id(), kind)).collect();
                Registry { encodings: Arc::new(encodings), layouts: Arc::new(layouts) }
            })
            .clone()
    }

    /// This registry with an additional encoding, which replaces one of the same id.
    #[must_use]
    pub fn with_encoding(&self, encoding: Arc<dyn Encoding>) -> Registry {
        let mut encodings = self.encodings.as_ref().clone();
        encodings.insert(encoding.id(), encoding);
        Registry { encodings: Arc::new(encodings), layouts: Arc::clone(&self.layouts) }
    }

    /// This registry with an additional layout, which replaces one of the same id.
    #[must_use]
    pub fn with_layout(&self, kind: Arc<dyn LayoutKind>) -> Registry {
        let mut layouts = self.layouts.as_ref().clone();
        layouts.insert(kind.id(), kind);
        Registry { encodings: Arc::clone(&self.encodings), layouts: Arc::new(layouts) }
    }

    /// The layout with this id.
    pub fn layout(&self, id: &str) -> Option<&Arc<dyn LayoutKind>> {
        self.layouts.get(id)
    }

    /// The encoding with this id.
    pub fn encoding(&self, id: &str) -> Option<&Arc<dyn Encoding>> {
        self.encodings.get(id)
    }

    /// The ids of all encodings, sorted.
    pub fn encoding_ids(&self) -> Vec<&'static str> {
        sorted(self.encodings.keys())
    }

    /// The ids of all layouts, sorted.
    pub fn layout_ids(&self) -> Vec<&'static str> {
        sorted(self.layouts.keys())
    }
}

/// Registries are equal if they are copies of one another.
impl PartialEq for Registry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.encodings, &other.encodings) && Arc::ptr_eq(&self.layouts, &other.layouts)
    }
}

impl Eq for Registry {}

impl Default for Registry {
    fn default() -> Self {
        Self::built_in()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("encodings", &self.encoding_ids())
            .field("layouts", &self.layout_ids())
            .finish()
    }
}

fn sorted<'a>(ids: impl Iterator<Item = &'a &'static str>) -> Vec<&'static str> {
    let mut ids: Vec<_> = ids.copied().collect();
    ids.sort_unstable();
    ids
}
