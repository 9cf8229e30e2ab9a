//! What a job's progress and speed are predicted from (arXiv 1908.08082, equations 1 to 5).
