// What frames may cost, in bytes: a bucket for each scope, and one for whoever has not shown whose
// frame it is. Unset meters let everything pass.

METER(SCOPES_MAX, job_meter)
METER(1, cpu_meter)
