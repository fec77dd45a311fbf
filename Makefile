# One-line aliases; the work is in dev.py.
.PHONY: demo test test-triggers check bench bench-election chaos clean
demo: ; python3 dev.py demo
test: ; python3 dev.py test
test-triggers: ; python3 dev.py test-triggers
check: ; python3 dev.py check
bench: ; python3 dev.py bench
bench-election: ; python3 dev.py bench-election
chaos: ; python3 dev.py chaos
clean: ; python3 dev.py clean
