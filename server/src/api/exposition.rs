//! The two formats in which Prometheus reads figures, and which of them a client asked for.

use std::fmt::Write;

/// A format of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The text format, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// What a client asked for with `Accept`. OpenMetrics comes only to one that names it and does
    /// not prefer text.
    pub(crate) fn asked(accept: Option<&str>) -> Self {
        let (mut text, mut open) = (0.0_f32, 0.0_f32);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            let weight = weight.unwrap_or(1.0_f32);
            match kind.as_str() {
                "application/openmetrics-text" => open = open.max(weight),
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Figures written as OpenMetrics, in this format. In the text format the description of a
    /// counter carries the name of its samples, with `_total`, and there is no end mark.
    pub(crate) fn write(self, open_metrics: String) -> String {
        if self == Self::OpenMetrics {
            return open_metrics;
        }
        let mut text = String::with_capacity(open_metrics.len());
        let mut lines = open_metrics.lines().peekable();
        while let Some(line) = lines.next() {
            let is_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
            let describes =
                line.starts_with("# HELP ") && lines.peek().is_some_and(|next| is_counter(next));
            if line == "# EOF" {
                continue;
            }
            if is_counter(line) || describes {
                let mut words = line.splitn(4, ' ');
                let mut word = || words.next().unwrap_or_default();
                let (hash, what, name, rest) = (word(), word(), word(), word());
                let _ = write!(text, "{hash} {what} {name}_total {rest}");
            } else {
                text.push_str(line);
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_to_those_that_ask_for_it_or_accept_all() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::asked(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::asked(Some("application/openmetrics-text")), Format::OpenMetrics);
        for accept in [
            None,
            Some("*/*"),
            Some("text/plain"),
            Some("text/plain;version=0.0.4;q=1,*/*;q=0.1"),
            Some("text/plain;q=0.6, application/openmetrics-text;q=0.5"),
            Some("application/openmetrics-text;q=0"),
        ] {
            assert_eq!(Format::asked(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn a_counter_is_described_by_the_name_of_its_samples_in_text() {
        let open = "# HELP a A counter.\n# TYPE a counter\na_total 1\n# HELP b B.\n# TYPE b gauge\n\
                    b 2\n# EOF\n";
        assert_eq!(
            Format::Text.write(open.into()),
            "# HELP a_total A counter.\n# TYPE a_total counter\na_total 1\n# HELP b B.\n\
             # TYPE b gauge\nb 2\n"
        );
        assert_eq!(Format::OpenMetrics.write(open.into()), open);
    }
}
