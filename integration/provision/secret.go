package provision

// Secret is the password of tests whose output .ci/run searches for it: found there, it
// was in an error, a log line or what a client library prints.
const Secret = "interlock-test-secret-7d1f"
