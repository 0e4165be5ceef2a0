// Package release tests that an outsider can use what make release tags.
package release
