/* SPDX-License-Identifier: Apache-2.0 */
/* The table of variables as documentation. */
#ifndef HA_BASE_CONFIG_DOC_H
#define HA_BASE_CONFIG_DOC_H

#include "base/config.h"

#include <stdio.h>

const char *ha_config_group_title(enum ha_config_group group);
/* The whole of docs/configuration.md. */
void ha_config_write_markdown(FILE *out);
/* The whole of docs/man/nccl-ha-config.7. */
void ha_config_write_man(FILE *out);

#endif
