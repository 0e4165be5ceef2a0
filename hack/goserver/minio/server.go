//go:build tools

package minio

import _ "github.com/minio/minio"
