package faults_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/faults"
	"github.com/interlock-go/lock/integration/provision"
)

// TestChecksFind runs locks with one flaw each, and expects violations of the rules that
// name it. It runs before the other tests: the flaws show by chance, and later on a busy
// machine.
func TestChecksFind(t *testing.T) {
	provision.LeaveOut(t, "broken locks under faults")
	rules := func(r ...faults.Rule) []faults.Rule { return r }
	consequences := rules(faults.Fence, faults.Stolen) // of two holders
	for _, tt := range []struct {
		flaw string
		want []faults.Rule // each of them
		may  []faults.Rule // besides
	}{
		{"none", nil, nil},
		{letsTwoIn, rules(faults.Exclusion, faults.Model), consequences},
		{repeatsToken, rules(faults.Token, faults.Model), rules(faults.Order)},
		{oldToken, rules(faults.Token, faults.Fence, faults.Model), rules(faults.Order)},
		{trustsTooLong, rules(faults.Exclusion, faults.Model), consequences},
		{freesAnothers, rules(faults.Exclusion, faults.Stolen, faults.Model), consequences},
		{leavesOrphan, rules(faults.Orphan), rules(faults.Forgotten, faults.Cut)},
		{forgetsWaiter, rules(faults.Forgotten), rules(faults.Order, faults.Cut)},
		{servesAnyWaiter, rules(faults.Order), nil},
		{forgetsClient, rules(faults.Cut), nil},
	} {
		t.Run(tt.flaw, func(t *testing.T) {
			t.Parallel()
			found := map[faults.Rule]bool{}
			var slack time.Duration
			if slices.ContainsFunc(tt.want, func(r faults.Rule) bool { return r == faults.Orphan || r == faults.Forgotten || r == faults.Cut }) {
				slack = 5 * time.Second // what every run waits for
			}
			for seed, begun := uint64(1), time.Now(); ; seed++ {
				shared := &toy{flaw: tt.flaw, keys: map[string]*toyKey{}}
				sessions := 0
				s := &faults.Service{
					Name: "toy", TTL: time.Second, Share: 1, Slack: slack, Judge: time.Minute,
					Open: func(context.Context, string) (backend.Backend, error) {
						if sessions++; sessions == 1 && tt.flaw == forgetsClient {
							return &forgotten{shared, time.Now().Add(time.Second)}, nil
						}
						return shared, nil
					},
				}
				res := s.Run(t, faults.Fault{Name: tt.flaw}, seed, 3*time.Second)
				t.Log(res)
				for _, v := range res.Violations {
					if v.Rule == faults.Undecided {
						continue // a busy machine
					}
					found[v.Rule] = true
					if !slices.Contains(tt.want, v.Rule) && !slices.Contains(tt.may, v.Rule) {
						t.Fatalf("want violations of %v only, got %v", tt.want, v)
					}
				}
				missing := slices.DeleteFunc(slices.Clone(tt.want), func(r faults.Rule) bool { return found[r] })
				undecided := res.Broken(faults.Undecided)
				if len(missing) == 0 && undecided == 0 {
					return
				}
				if time.Since(begun) > 5*time.Minute {
					t.Fatalf("want violations of %v within five minutes; %d keys of the last run are undecided", missing, undecided)
				}
			}
		})
	}
}
