//! Prometheus' text format: for every family its help, its type, then a line per set of labels.

use std::fmt::{Display, Write};

#[derive(Default)]
pub struct Page(String);

#[derive(Debug, Clone, Copy)]
pub enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// Names and values, in order.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    pub fn text(self) -> String {
        self.0
    }

    /// The lines of the family follow at once.
    pub fn family(&mut self, name: &str, of: Type, help: &str) {
        let of = match of {
            Type::Counter => "counter",
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {of}\n");
    }

    pub fn line(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            text.chars().for_each(|letter| match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            });
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A histogram of seconds: upper bounds ascending with the count of each bucket, what is above all bounds left out of them.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        buckets: &[(f64, u64)],
        sum: f64,
        count: u64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, inside) in buckets {
            below += inside;
            let bound = bound.to_string();
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.line(&bucket, &labels, below);
        }
        let labels_of_all = [labels, &[("le", "+Inf")]].concat();
        self.line(&bucket, &labels_of_all, count);
        self.line(&format!("{name}_sum"), labels, sum);
        self.line(&format!("{name}_count"), labels, count);
    }

    /// A counter without labels.
    pub fn count(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, Type::Counter, help);
        self.line(name, &[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Type::Gauge, help);
        self.line(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut page = Page::default();
        page.histogram(
            "t_seconds",
            &[("c", "get")],
            &[(0.001, 2), (0.01, 1)],
            0.5,
            4,
        );
        let text = "t_seconds_bucket{c=\"get\",le=\"0.001\"} 2\nt_seconds_bucket{c=\"get\",le=\"0.01\"} 3\n\
                    t_seconds_bucket{c=\"get\",le=\"+Inf\"} 4\nt_seconds_sum{c=\"get\"} 0.5\nt_seconds_count{c=\"get\"} 4\n";
        assert_eq!(page.text(), text);
    }

    #[test]
    fn labels_are_quoted() {
        let mut page = Page::default();
        page.family("a_total", Type::Counter, "What.");
        page.line("a_total", &[("x", "1"), ("y", "q\"\\\nz")], 3);
        page.gauge("b", "Gauge.", 1.5);
        let text = "# HELP a_total What.\n# TYPE a_total counter\na_total{x=\"1\",y=\"q\\\"\\\\\\nz\"} 3\n\
                    # HELP b Gauge.\n# TYPE b gauge\nb 1.5\n";
        assert_eq!(page.text(), text);
    }
}
