//! `{{ … }}` in parameters and the expressions of `if:`. Strict about unknown names and bounded in work.

