#!/usr/bin/env bash
# placeholder until the runner lands
exit 1
