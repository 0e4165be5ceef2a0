//go:build tools

package server

import _ "github.com/nats-io/nats-server/v2"
