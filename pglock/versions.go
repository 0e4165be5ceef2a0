package pglock

import (
	"context"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

var version = regexp.MustCompile(`^[0-9a-f]{12}$`)

// dropVersions drops the functions of versions that no client has used for that long. A client that still uses one
// creates it again. It needs a role that owns the functions.
func (s *service) dropVersions(ctx context.Context, unused time.Duration) error {
	old, _, err := query(ctx, s.server, pgx.RowTo[string], s.sql.unusedVersions, micro(unused), s.sql.version)
	if err != nil {
		return err
	}
	for _, v := range old {
		if !version.MatchString(v) {
			continue
		}
		if err := s.create(ctx, s.sql.drop(v)); err != nil {
			return err
		}
		if _, err := s.exec(ctx, s.sql.forgetVersion, v); err != nil {
			return err
		}
	}
	return nil
}
