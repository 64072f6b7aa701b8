//! Values compared by the order of ties (R-T2) and by equality (R-U1).
