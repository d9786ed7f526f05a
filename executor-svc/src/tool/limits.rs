//! Bounds of a tool's result: what a model is shown of a long one.

/// Most bytes of a result, the mark of what is left out included.
pub const RESULT_MAX: usize = 16 * 1024;

/// How much of a long result comes from its end: errors and summaries stand there.
const TAIL_MAX: usize = 4 * 1024;

/// Room for the mark between head and tail.
const MARK_MAX: usize = 256;

/// What is kept of the end while more may come: a little more, since a cut moves to the next whole character.
const TAIL_KEPT: usize = TAIL_MAX + 4;

const HEAD_MAX: usize = RESULT_MAX - TAIL_MAX - MARK_MAX;

/// Text that keeps its head and its tail however much is written to it.
#[derive(Debug, Default)]
pub struct HeadTail {
    /// Up to `RESULT_MAX` bytes: whole as long as the text is short.
    head: String,
    /// What came after, cut at the front now and then.
    tail: String,
    written: usize,
}

/// A result as a model is shown it: whole up to [`RESULT_MAX`], otherwise head and tail with a line between them that says
/// how much is left out. Never cuts a character.
pub fn cut(text: String) -> String {
    if text.len() <= RESULT_MAX {
        return text;
    }
    let mut kept = HeadTail::default();
    kept.push(&text);
    kept.finish("")
}

/// At most `bytes_max` bytes of a text, with a mark where it is cut.
pub fn start(text: &str, bytes_max: usize) -> String {
    match text.len() <= bytes_max {
        true => text.to_owned(),
        false => {
            let kept = &text[..text.floor_char_boundary(bytes_max)];
            format!("{kept}… ({} bytes more)", text.len() - kept.len())
        }
    }
}

impl HeadTail {
    pub fn push(&mut self, text: &str) {
        self.written += text.len();
        let room = RESULT_MAX - self.head.len();
        if self.tail.is_empty() && text.len() <= room {
            self.head.push_str(text);
            return;
        }
        let split = match self.tail.is_empty() {
            true => text.floor_char_boundary(room),
            false => 0,
        };
        self.head.push_str(&text[..split]);
        self.push_tail(&text[split..]);
    }

    /// True when what comes next begins a line.
    pub fn ends_line(&self) -> bool {
        let end = if self.tail.is_empty() { &self.head } else { &self.tail };
        end.is_empty() || end.ends_with('\n')
    }

    /// True once something will be left out.
    pub fn is_cut(&self) -> bool {
        self.written > RESULT_MAX
    }

    /// The text. `advice` is added to the mark and says how to see the rest.
    pub fn finish(self, advice: &str) -> String {
        if !self.is_cut() {
            return self.head + &self.tail;
        }
        let rest = self.head + &self.tail;
        let head = &rest[..rest.floor_char_boundary(HEAD_MAX)];
        let tail = &rest[rest.ceil_char_boundary(rest.len() - TAIL_MAX)..];
        // Whole lines where there are any, so that no number or path is shown in half.
        let head = head.rfind('\n').filter(|&end| end > HEAD_MAX / 2).map_or(head, |end| &head[..end]);
        let tail = tail.find('\n').filter(|&end| end < TAIL_MAX / 2).map_or(tail, |end| &tail[end + 1..]);

        let left_out = self.written - head.len() - tail.len();
        let mut mark = format!("[… {left_out} of {} bytes left out", self.written);
        if !advice.is_empty() {
            mark.push_str(": ");
            mark.push_str(advice);
        }
        mark.push_str(" …]");
        format!("{head}\n{}\n{tail}", start(&mark, MARK_MAX - 32))
    }

    fn push_tail(&mut self, text: &str) {
        let text = &text[text.ceil_char_boundary(text.len().saturating_sub(TAIL_KEPT))..];
        self.tail.push_str(text);
        // Cut rarely, so that many short writes stay cheap.
        if self.tail.len() > 4 * TAIL_MAX {
            let keep = self.tail.ceil_char_boundary(self.tail.len() - TAIL_KEPT);
            self.tail.drain(..keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HeadTail, RESULT_MAX, cut};

    #[test]
    fn a_short_result_stays_as_it_is() {
        let text = "é".repeat(RESULT_MAX / 2);
        assert_eq!(cut(text.clone()), text);
    }

    #[test]
    fn a_long_result_keeps_head_and_tail_and_says_how_much_is_left_out() {
        let text = format!("first\n{}last", "some line\n".repeat(10_000));

        let kept = cut(text.clone());

        assert!(kept.starts_with("first\nsome line\n") && kept.ends_with("\nsome line\nlast"), "{kept}");
        assert!(kept.len() <= RESULT_MAX);
        let shown: usize =
            kept.lines().filter(|line| !line.starts_with("[…")).map(|line| line.len() + 1).sum();
        let mark = kept.lines().find(|line| line.starts_with("[…")).unwrap();
        let left_out: usize = mark.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(left_out.abs_diff(text.len() - shown) <= 2, "{mark}, but {shown} of {} shown", text.len());
    }

    #[test]
    fn one_endless_line_is_cut_too() {
        let kept = cut(format!("{}END", "x".repeat(1_000_000)));

        assert!(kept.ends_with("xEND") && kept.len() <= RESULT_MAX);
    }

    proptest! {
        #[test]
        fn any_writes_stay_bounded_and_short_ones_are_exact(
            piece in "[a-zä€😀\n]{1,30}", repeats in prop::collection::vec(0..40_usize, 0..60),
        ) {
            let parts: Vec<String> = repeats.iter().map(|&count| piece.repeat(count)).collect();
            let whole = parts.concat();
            let mut kept = HeadTail::default();
            for part in &parts {
                kept.push(part);
            }

            let text = kept.finish("use `offset`");

            prop_assert!(text.len() <= RESULT_MAX);
            match whole.len() <= RESULT_MAX {
                true => prop_assert_eq!(text, whole),
                false => {
                    prop_assert!(text.contains("bytes left out: use `offset`"));
                    prop_assert_eq!(text.chars().next(), whole.chars().next());
                    prop_assert_eq!(text.chars().last(), whole.chars().last());
                }
            }
        }
    }
}
