//! Whatever is thrown at the core, it answers: no panic, no broken promise. One module per part.

mod answers;
mod arbitrary;
mod explain;
mod figures;
mod retry;
mod text;
mod time;
mod transition;
