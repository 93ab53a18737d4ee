//! How does a picture's text become pixels, the same on every machine?
//!
//! The library draws the SVG text itself, with a font that is part of this program: fonts that happen to be installed are
//! not asked.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::error::FigureError;
use crate::limits::PNG_SCALE;

/// The font of every picture, under every name that a picture asks for.
static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(epaint_default_fonts::HACK_REGULAR.to_vec());
    fonts.set_monospace_family("Hack");
    Arc::new(fonts)
});

/// The picture `svg`, named `title` in errors, as the bytes of a PNG file.
pub(crate) fn drawn(title: &str, svg: &str) -> Result<Vec<u8>, FigureError> {
    let failed = |reason: String| FigureError::Raster { chart: title.to_owned(), reason };
    let options =
        Options { fontdb: Arc::clone(&FONTS), font_family: "Hack".to_owned(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let Some(size) = tree.size().to_int_size().scale_by(PNG_SCALE) else {
        return Err(failed("its size is zero".to_owned()));
    };
    let Some(mut pixels) = Pixmap::new(size.width(), size.height()) else {
        return Err(failed(format!("no memory for {} x {} pixels", size.width(), size.height())));
    };
    resvg::render(&tree, Transform::from_scale(PNG_SCALE, PNG_SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}
