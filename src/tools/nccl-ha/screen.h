/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal that is drawn on again and again, and given back as it was. */
#ifndef NH_SCREEN_H
#define NH_SCREEN_H

#include <stdbool.h>

/* Takes the terminal if standard output is one; else frames follow each other. Signals that end a
 * program end waiting instead. */
void nh_screen_open(void);
void nh_screen_close(void); /* may be called more than once */

bool nh_screen_is_terminal(void);
/* Lines and columns; 0, 0: no limit. */
void nh_screen_size(int *lines, int *columns);

/* Shows text of lines. A line that begins with one of these characters is marked by it. */
#define NH_SCREEN_HEAD "\001"
#define NH_SCREEN_WARN "\002"
#define NH_SCREEN_BAD  "\003"
void nh_screen_show(const char *text);

/* Waits; false: it is to end (q, Ctrl-C, a signal, end of input). Returns early when the window
 * changed or a key was pressed. */
bool nh_screen_wait(double seconds);

#endif
